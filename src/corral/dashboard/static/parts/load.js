// "Load a model": which, where, and whether it stays.
import { html } from "../core/dom.js";
import { post } from "../core/api.js";
import { Field, Select } from "./form.js";
import { toast } from "./toast.js";
import { openForm } from "./tile.js";

export const openLoad = ({ model = "", models = [], workers }) =>
  openForm({
    title: model ? `Load ${model}` : "Load a model",
    action: "Load",
    send: async ({ model_name: name, worker_id: worker, pin }) => {
      const told = await post("/models/assign", { model_name: name, worker_ids: [worker], ...(pin ? { pin: true } : {}) });
      toast(`${name}: ${told.assignments[0]?.status ?? "asked for"}`);
    },
    Fields: () => html`
      <${Field} name="model_name" label="Model" value=${model} list="load-models" required />
      <datalist id="load-models">${models.map((name) => html`<option key=${name} value=${name} />`)}</datalist>
      <${Select} name="worker_id" label="Worker" options=${workers.map((one) => [one.worker_id, `${one.name} on ${one.node_id} (${one.job_types.slice(0, 3).join(", ")})`])} />
      <${Field} name="pin" type="checkbox" label="Keep it in memory" hint="it is never dropped, and loaded again after each restart" />`,
  });
