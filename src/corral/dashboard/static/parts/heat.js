// Every card of the cluster at a glance: how full its memory is, and how busy it is.
import { html } from "../core/dom.js";
import { part } from "../core/api.js";
import { megabytes, NONE } from "../core/format.js";
import { Link } from "../core/router.js";

export const isWell = (gpu) => gpu.health === "ok" && !gpu.error;

const shareOf = (gpu) => (gpu.memory_total_mb ? (gpu.memory_used_mb ?? 0) / gpu.memory_total_mb : 0);
const percent = (share) => `${Math.round(share * 100)} %`;

function told(gpu) {
  const parts = [
    `GPU ${gpu.index}: ${gpu.name}`,
    `memory ${megabytes(gpu.memory_used_mb)} of ${megabytes(gpu.memory_total_mb)}`,
    gpu.utilization_percent !== null && `busy ${Math.round(gpu.utilization_percent)} %`,
    gpu.temperature_c !== null && `${Math.round(gpu.temperature_c)} °C`,
    !isWell(gpu) && (gpu.error || gpu.health),
    !gpu.is_offered && "not offered",
  ];
  return parts.filter(Boolean).join(", ");
}

const Card = ({ gpu }) => html`
  <li class="gpu ${isWell(gpu) ? "" : "bad"} ${gpu.is_offered ? "" : "closed"}" title=${told(gpu)} aria-label=${told(gpu)}>
    <span class="use" style=${{ height: `${Math.round(shareOf(gpu) * 100)}%` }} aria-hidden="true"></span>
    <b aria-hidden="true">${isWell(gpu) ? percent(shareOf(gpu)) : "✕"}</b>
    <small aria-hidden="true">${gpu.utilization_percent === null ? NONE : `${Math.round(gpu.utilization_percent)} % busy`}</small>
  </li>
`;

export const Heat = ({ nodes }) => html`
  <div class="heat">
    ${nodes.map((node) => html`<div class="host" key=${node.node_id}>
      <${Link} to="/nodes/${part(node.node_id)}" title=${node.hostname}>${node.hostname}</${Link}>
      <ul aria-label="GPUs of ${node.hostname}">${node.gpus.map((gpu) => html`<${Card} key=${gpu.id} gpu=${gpu} />`)}</ul>
    </div>`)}
  </div>
  <p class="legend"><span>The filled part and the first figure: memory in use.</span><span>✕ a card that failed or is in quarantine.</span></p>
`;
