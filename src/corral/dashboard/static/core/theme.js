// Light, dark, or as the system has it. `isDark` is what is drawn now.
import { signal } from "./dom.js";

const KEY = "corral.theme";
const system = matchMedia("(prefers-color-scheme: dark)");
export const theme = signal(document.documentElement.dataset.theme ?? "auto");
export const isDark = signal(false);

function look() {
  isDark.value = theme.value === "dark" || (theme.value === "auto" && system.matches);
}

export function choose(word) {
  theme.value = word;
  if (word === "auto") {
    localStorage.removeItem(KEY);
    delete document.documentElement.dataset.theme;
  } else {
    localStorage.setItem(KEY, word);
    document.documentElement.dataset.theme = word;
  }
  look();
}

system.addEventListener("change", look);
look();

// How wide the screen is, where style alone cannot do it: a phone's, or not the widest.
function watched(query) {
  const media = matchMedia(query);
  const found = signal(media.matches);
  media.addEventListener("change", () => (found.value = media.matches));
  return found;
}
export const isNarrow = watched("(max-width: 820px)");
export const isModest = watched("(max-width: 1440px)");

// A colour of style/base.css as it is now, for what is drawn on a canvas.
export const colour = (name) =>
  getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
