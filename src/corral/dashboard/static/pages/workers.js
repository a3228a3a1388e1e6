// Every process that runs tasks.
import { html, useMemo } from "../core/dom.js";
import { useData } from "../core/live.js";
import { Card, Page } from "../parts/page.js";
import { Empty, Loaded } from "../parts/state.js";
import { WorkerTable } from "../parts/worker_table.js";

export default function Workers() {
  const workers = useData("/workers", { events: ["worker_status_changed", "model_loaded", "model_unloaded"], later: ["tasks_changed"], every: 15, pause: 1 });
  const nodes = useData("/nodes", { events: ["node_status_changed"] });
  const hosts = useMemo(() => new Map((nodes.data?.nodes ?? []).map((node) => [node.node_id, node.hostname])), [nodes.data]);
  return html`<${Page} title="Workers" lead="Processes that run tasks, each for some job types.">
    <${Card}><${Loaded} from=${workers}>${(data) => html`<${WorkerTable} workers=${data.workers} hosts=${hosts}
      empty=${html`<${Empty} title="No worker runs" hint="Start one on a node:" command="corral worker launch corral.worker.builtin:EchoWorker" />`} />`}</${Loaded}></${Card}>
  </${Page}>`;
}
