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

// So many cards have a place of their own with figures; more are told by colour alone.
const FEW = 96;
const STEPS = 10;

function summed(node) {
  const total = node.gpus.reduce((sum, gpu) => sum + (gpu.memory_total_mb ?? 0), 0);
  const used = node.gpus.reduce((sum, gpu) => sum + (gpu.memory_used_mb ?? 0), 0);
  const known = node.gpus.filter((gpu) => gpu.utilization_percent !== null);
  const busy = known.reduce((sum, gpu) => sum + gpu.utilization_percent, 0) / known.length;
  const failed = node.gpus.filter((gpu) => !isWell(gpu)).length;
  return [
    `${node.hostname}: ${node.gpus.length} GPUs`,
    total > 0 && `memory ${percent(used / total)}`,
    known.length > 0 && `busy ${Math.round(busy)} %`,
    failed > 0 && `${failed} failed`,
  ].filter(Boolean).join(", ");
}

const cell = (gpu) => (isWell(gpu) ? `l${Math.min(STEPS - 1, Math.floor(shareOf(gpu) * STEPS))}` : "bad");

// One look at thousands of cards: a block is a machine, a square one of its cards.
const Dense = ({ nodes }) => html`
  <ul class="heat dense" aria-label="GPUs of each machine" tabindex="0">
    ${nodes.map((node) => {
      const words = summed(node);
      return html`<li key=${node.node_id}><${Link} to="/nodes/${part(node.node_id)}" title=${words} aria-label=${words} tabindex="-1">
        ${node.gpus.map((gpu) => html`<i key=${gpu.id} class=${cell(gpu)}></i>`)}</${Link}></li>`;
    })}
  </ul>
  <p class="legend"><span>A block is a machine, a square a card: the darker, the more of its memory is in use.</span><span>Outlined in red: a card that failed or is in quarantine.</span></p>
`;

const byName = (a, b) => a.hostname.localeCompare(b.hostname, undefined, { numeric: true });

export function Heat({ nodes }) {
  const sorted = [...nodes].sort(byName);
  const isMany = nodes.reduce((sum, node) => sum + node.gpus.length, 0) > FEW;
  return isMany ? html`<${Dense} nodes=${sorted} />` : html`<${Full} nodes=${sorted} />`;
}

const Full = ({ nodes }) => html`
  <div class="heat">
    ${nodes.map((node) => html`<div class="host" key=${node.node_id}>
      <${Link} to="/nodes/${part(node.node_id)}" title=${node.hostname}>${node.hostname}</${Link}>
      <ul aria-label="GPUs of ${node.hostname}">${node.gpus.map((gpu) => html`<${Card} key=${gpu.id} gpu=${gpu} />`)}</ul>
    </div>`)}
  </div>
  <p class="legend"><span>The filled part and the first figure: memory in use.</span><span>✕ a card that failed or is in quarantine.</span></p>
`;
