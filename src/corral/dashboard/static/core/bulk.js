// Many requests, a few at a time, and one word on how they went.
import { toast } from "../parts/toast.js";

const AT_ONCE = 8;

// [{id, error}]: what `act(id)` refused.
export async function each(ids, act) {
  const left = [...ids];
  const refused = [];
  const one = async () => {
    while (left.length) {
      const id = left.shift();
      try {
        await act(id);
      } catch (error) {
        refused.push({ id, error });
      }
    }
  };
  await Promise.all(Array.from({ length: AT_ONCE }, one));
  return refused;
}

export const plural = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;

// The same, told in a corner: `done` reads like "cancelled".
export async function eachTold(ids, act, word, done) {
  const refused = await each(ids, act);
  const went = ids.length - refused.length;
  if (went) toast(`${plural(went, word)} ${done}`);
  if (refused.length) toast(`${plural(refused.length, word)} not ${done}: ${refused[0].error.message}`, "bad");
  return refused;
}
