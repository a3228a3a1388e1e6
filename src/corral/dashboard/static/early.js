// Before anything is drawn, so that a dark page does not begin white.
(() => {
  const chosen = localStorage.getItem("corral.theme");
  if (chosen === "dark" || chosen === "light") document.documentElement.dataset.theme = chosen;
})();
