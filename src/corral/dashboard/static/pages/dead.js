// Dead letters: what failed for good, why, and what to do with it.
import { html, useState } from "../core/dom.js";
import { may, part, post } from "../core/api.js";
import { useTasks } from "../core/tasks.js";
import { eachTold, everyTold, plural } from "../core/bulk.js";
import { Link } from "../core/router.js";
import { brief, count, NONE, words } from "../core/format.js";
import { Card, Page } from "../parts/page.js";
import { Badge } from "../parts/badge.js";
import { Table } from "../parts/table.js";
import { Ago } from "../parts/time.js";
import { Empty, Fault, Skeleton } from "../parts/state.js";
import { Copy } from "../parts/copy.js";
import { confirm, openDialog } from "../parts/dialog.js";
import { RowActions } from "../parts/tile.js";

const showWhy = (row) =>
  openDialog(
    ({ close }) => html`
      <p><b>${row.error.kind}</b>: ${row.error.message}</p>
      ${row.error.traceback ? html`<pre class="traceback" tabindex="0">${row.error.traceback}</pre>` : html`<p class="hint">There is no traceback.</p>`}
      <div class="actions">
        ${row.error.traceback && html`<${Copy} text=${row.error.traceback} />`}
        <${Link} to=${`/tasks/${part(row.task_id)}`} class="button" onClick=${() => close()}>Open the task</${Link}>
        <button class="main" onClick=${() => close()}>Close</button>
      </div>`,
    { title: `${row.task_type} ${brief(row.task_id, 18)}` },
  );

export default function Dead() {
  const [chosen, setChosen] = useState(new Set());
  const list = useTasks({ dead: true }, () => chosen.size === 0);
  const { rows, total, error, isLoading } = list;
  const finish = () => (setChosen(new Set()), list.reload());
  const requeue = async (ids) => {
    await eachTold(ids, (id) => post(`/tasks/${part(id)}/requeue`), "task", "queued again");
    finish();
  };
  const requeueAll = async () => {
    const text = "Each runs anew under its own id, with the same input.";
    if (!(await confirm({ title: `Requeue ${total === 1 ? "the dead letter" : `all ${plural(total, "dead letter")}`}?`, text, action: "Requeue" }))) return;
    await everyTold("/tasks/requeue", { dead: true }, "task", "queued again");
    finish();
  };
  const discard = async (ids) => {
    const text = "They are dead letters no more. The tasks stay in the history.";
    if (!(await confirm({ title: `Discard ${plural(ids.length, "dead letter")}?`, text, action: "Discard", isGrave: true }))) return;
    await eachTold(ids, (id) => post("/discard_from_dlq", { job_id: id }), "dead letter", "discarded");
    finish();
  };
  const columns = [
    { name: "state", title: "State", isExtra: true, cell: (row) => html`<${Badge} state=${row.status} />` },
    { name: "type", title: "Type", isMain: true, cell: (row) => row.task_type, under: (row) => row.error?.message ?? row.task_id },
    { name: "task", title: "Task", isExtra: true, cell: (row) => html`<${Link} to=${`/tasks/${part(row.task_id)}`} class="mono" tabindex="-1">${brief(row.task_id, 18)}</${Link}>` },
    { name: "why", title: "Reason", isExtra: true, cell: (row) => (row.error ? html`<span class="clip" title=${row.error.message}>${row.error.kind !== "exception" && html`<b>${words(row.error.kind)}</b> `}${row.error.message}</span>` : NONE) },
    { name: "attempts", title: "Attempts", isNumber: true, isExtra: true, cell: (row) => count(row.attempt) },
    { name: "ended", title: "Failed", cell: (row) => html`<${Ago} at=${row.completed_at} />` },
    { name: "act", title: html`<span class="hidden-text">Actions</span>`, isNumber: true, cell: (row) => html`<${RowActions} of=${`task ${row.task_id}`} actions=${[
      row.error && ["Why", () => showWhy(row)],
      may("submit") && ["Requeue", () => requeue([row.task_id])],
    ]} />` },
  ];
  const ids = [...chosen];
  const aside = chosen.size
    ? html`<b>${count(chosen.size)} chosen</b><button class="small" onClick=${() => requeue(ids)}>Requeue ${chosen.size}</button>
        <button class="small grave" onClick=${() => discard(ids)}>Discard ${chosen.size}</button><button class="small" onClick=${() => setChosen(new Set())}>None</button>`
    : html`<span role="status">${total === null ? "" : plural(total, "dead letter")}</span>
        ${may("submit") && total > 0 && html`<button class="small" onClick=${requeueAll}>Requeue all…</button>`}`;
  return html`<${Page} title="Dead letters" lead="Tasks that failed for good: no attempt is left. Each keeps its error, its traceback and every attempt.">
    <${Card} title="Dead letters, newest first" aside=${aside}>
      ${error && html`<${Fault} error=${error} retry=${list.reload} />`}
      ${isLoading && !rows.length
        ? html`<${Skeleton} />`
        : html`<${Table} label="Dead letters" rows=${rows} id=${(row) => row.task_id} columns=${columns} total=${total ?? undefined} onEnd=${list.more}
            to=${(row) => `/tasks/${part(row.task_id)}`} selected=${may("submit") ? chosen : undefined} onSelect=${may("submit") ? setChosen : undefined}
            empty=${error ? html`<span />` : html`<${Empty} title="No dead letters" hint="Nothing has failed for good." />`} />`}
    </${Card}>
  </${Page}>`;
}
