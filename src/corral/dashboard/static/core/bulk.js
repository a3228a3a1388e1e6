// Many requests, a few at a time, and one word on how they went.
import { post } from "./api.js";
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

// What all of them came to, told in a corner.
function tell(went, refused, message, word, done) {
  if (went) toast(`${plural(went, word)} ${done}`);
  if (refused) toast(`${plural(refused, word)} not ${done}: ${message}`, "bad");
  if (!went && !refused) toast(`There was nothing left to be ${done}`);
}

// Everything a query finds, by the manager itself, which does a page at a time.
export async function everyTold(path, query, word, done) {
  let [went, refused, message, cursor] = [0, 0, "", undefined];
  try {
    do {
      const told = await post(path, {}, { query: { ...query, cursor } });
      went += told.done;
      refused += told.refused;
      message ||= told.errors[0]?.message ?? "";
      cursor = told.next_cursor;
    } while (cursor);
  } catch (error) {
    toast(error.message, "bad");
  }
  tell(went, refused, message, word, done);
}

// The same, told in a corner: `done` reads like "cancelled".
export async function eachTold(ids, act, word, done) {
  const refused = await each(ids, act);
  tell(ids.length - refused.length, refused.length, refused[0]?.error.message, word, done);
  return refused;
}
