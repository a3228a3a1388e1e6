// Keys and tokens: who may come in. What is secret is shown once, when it is made.
import { html } from "../core/dom.js";
import { del, may, part, post, session } from "../core/api.js";
import { useData } from "../core/live.js";
import { moment } from "../core/format.js";
import { Card, Page } from "../parts/page.js";
import { Badge } from "../parts/badge.js";
import { Table } from "../parts/table.js";
import { Ago } from "../parts/time.js";
import { Empty, Loaded } from "../parts/state.js";
import { Field, Select } from "../parts/form.js";
import { Command, Copy } from "../parts/copy.js";
import { act } from "../parts/toast.js";
import { confirm, openDialog } from "../parts/dialog.js";
import { openForm, RowActions } from "../parts/tile.js";

const ROLES = [["read", "read: look at everything"], ["submit", "submit: and submit, cancel, requeue"], ["operate", "operate: and change workers, nodes, models"], ["admin", "admin: everything"]];
const LIVES = [["", "does not expire"], [86_400, "a day"], [604_800, "a week"], [2_592_000, "30 days"], [7_776_000, "90 days"], [31_536_000, "a year"]];

const showOnce = (title, secret, about) =>
  openDialog(
    ({ close }) => html`
      <p>${about}</p>
      <div class="command secret"><pre><code>${secret}</code></pre><${Copy} text=${secret} /></div>
      <div class="actions"><button class="main" onClick=${() => close()}>I have it</button></div>`,
    { title },
  );

const openKey = () =>
  openForm({
    title: "Create a key",
    action: "Create",
    send: ({ name, role, ttl_s: ttl }) => post("/keys", { name, role, ...(ttl ? { ttl_s: Number(ttl) } : {}) }),
    Fields: () => html`
      <${Field} name="name" label="Whose it is" required placeholder="ann" hint="tasks submitted with it are theirs" />
      <${Select} name="role" label="What it may" options=${ROLES} value="submit" />
      <${Select} name="ttl_s" label="Good for" options=${LIVES} value="" />`,
  });

const openToken = () =>
  openForm({
    title: "Make a join token",
    action: "Make",
    send: ({ hours, uses }) => post("/join-tokens", { ttl_s: hours * 3600, uses }),
    Fields: () => html`
      <${Field} name="hours" label="Good for, hours" type="number" min="0.1" step="any" value="24" required />
      <${Field} name="uses" label="For so many machines" type="number" min="1" value="1" required />`,
  });

export default function Keys() {
  const isAdmin = may("admin");
  const keys = useData(isAdmin ? "/keys" : null, { every: 60 });
  if (!isAdmin) return html`<${Page} title="Keys and tokens"><${Card}><${Empty} title="For administrators" hint="A key with the role admin sees and makes keys." /></${Card}></${Page}>`;
  const create = async () => {
    const made = await openKey();
    if (!made?.key) return;
    keys.reload();
    await showOnce(`The key of ${made.name}`, made.key, "It is shown this once, and nowhere kept. Hand it over now.");
  };
  const token = async () => {
    const made = await openToken();
    if (!made?.token) return;
    await showOnce("A join token", made.token, html`Good until ${moment(made.expires_at)}. On the machine that is to join, put it into a file and run <code>corral join ${location.origin} --token-file token.txt</code>.`);
  };
  const revoke = async (row) =>
    (await confirm({ title: `Revoke the key of ${row.name}?`, text: "It is refused from this moment on, and open pages of it are let go. What was submitted with it stays.", action: "Revoke", isGrave: true })) &&
    (await act(del(`/keys/${part(row.key_id)}`), `The key of ${row.name} is revoked`)) && keys.reload();
  const columns = [
    { name: "name", title: "Whose", cell: (row) => html`${row.name}${row.name === session.value.name && row.status === "valid" ? html` <span class="hint">(you)</span>` : ""}`, sort: (row) => row.name },
    { name: "role", title: "May", cell: (row) => row.role, sort: (row) => row.role },
    { name: "status", title: "State", cell: (row) => html`<${Badge} state=${row.status} />`, sort: (row) => row.status },
    { name: "id", title: "Id", isExtra: true, cell: (row) => html`<span class="mono">${row.key_id}</span>` },
    { name: "made", title: "Made", isExtra: true, cell: (row) => html`<${Ago} at=${row.created_at} />`, sort: (row) => Date.parse(row.created_at ?? 0) },
    { name: "until", title: "Expires", isExtra: true, cell: (row) => (row.expires_at ? html`<${Ago} at=${row.expires_at} />` : "never") },
    { name: "used", title: "Last used", isExtra: true, cell: (row) => (row.last_used_at ? html`<${Ago} at=${row.last_used_at} />` : "not yet") },
    { name: "act", title: html`<span class="hidden-text">Actions</span>`, isNumber: true, cell: (row) => html`<${RowActions} of="the key of ${row.name}" actions=${[row.status === "valid" && ["Revoke", () => revoke(row), "grave"]]} />` },
  ];
  return html`<${Page} title="Keys and tokens" actions=${html`<button onClick=${() => act(token())}>Make a join token</button><button class="main" onClick=${() => act(create())}>Create a key</button>`}>
    <div class="stack">
      <${Card} title="Keys of people"><${Loaded} from=${keys}>${(data) => html`<${Table} label="Keys" rows=${data.keys} id=${(row) => row.key_id} columns=${columns} sort="name"
        empty=${html`<${Empty} title="No keys yet" />`} />`}</${Loaded}></${Card}>
      <${Card} title="From a terminal"><${Command}>corral key create ann --role submit --expires 90d</${Command}><${Command}>corral token create</${Command}></${Card}>
    </div>
  </${Page}>`;
}
