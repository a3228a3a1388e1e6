// What is wrong now, worst first, with a button to say that somebody looks after it.
import { html } from "../core/dom.js";
import { may, part, post } from "../core/api.js";
import { Link } from "../core/router.js";
import { Badge } from "./badge.js";
import { openDialog } from "./dialog.js";
import { Field, Form } from "./form.js";
import { toast } from "./toast.js";

export const acknowledge = (id, title) =>
  openDialog(
    ({ close }) => html`
      <p>${title}</p>
      <${Form} action="Acknowledge" onCancel=${() => close(false)} onSubmit=${async ({ note }) => {
        await post(`/alerts/${part(id)}/acknowledge`, { note: note ?? "" });
        toast("Acknowledged");
        close(true);
      }}>
        <${Field} name="note" label="Note" hint="What is being done about it; others see it." maxlength="500" autofocus />
      </${Form}>
    `,
    { title: "Acknowledge this alert" },
  );

const WORST = ["critical", "error", "warning", "info"];

export const Reasons = ({ reasons, reload }) => html`
  <ul class="reasons">
    ${[...reasons].sort((a, b) => WORST.indexOf(a.severity) - WORST.indexOf(b.severity)).map(
      (one) => html`<li key="${one.rule} ${one.subject}">
        <${Badge} state=${one.severity} />
        <span class="text">${one.node_id ? html`<${Link} to="/nodes/${part(one.node_id)}">${one.title}</${Link}>` : one.title}</span>
        ${one.is_acknowledged && html`<span class="hint">acknowledged</span>`}
        ${!one.is_acknowledged && one.alert_id && may("operate") &&
        html`<button class="small" onClick=${async () => (await acknowledge(one.alert_id, one.title)) && reload()}>Acknowledge</button>`}
      </li>`,
    )}
  </ul>
`;
