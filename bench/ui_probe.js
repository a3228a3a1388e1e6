// Looks at the dashboard's pages from inside: when was what shown, and was anything late?
(() => {
  const wanted = Object.entries(WANTED).find(([path]) => new RegExp(`^/ui${path}$`).test(location.pathname))?.[1];
  const isThere = (selector) => {
    const found = document.querySelector(selector);
    // A dash stands where nothing is known yet.
    return found && (found.tagName === "CANVAS" || found.value || !["", "–"].includes(found.textContent.trim()));
  };
  window.benchMissing = () => (document.querySelector(".skeleton") ? [".skeleton"] : []).concat(wanted.filter((one) => !isThere(one)));
  window.benchShown = 0;
  performance.setResourceTimingBufferSize(10_000);
  const look = () => {
    if (document.querySelector("h1") && !benchMissing().length) {
      requestAnimationFrame(() => (window.benchShown = performance.now()));
    } else {
      requestAnimationFrame(look);
    }
  };
  if (wanted) requestAnimationFrame(look);

  window.benchWatch = (test, given) => {
    window.benchSeen = 0;
    const watch = () => {
      if (test(...given)) requestAnimationFrame(() => (window.benchSeen = performance.timeOrigin + performance.now()));
      else requestAnimationFrame(watch);
    };
    watch();
  };

  let gaps = [];
  let long = [];
  let last = 0;
  let isOn = false;
  const observer = new PerformanceObserver((list) => long.push(...list.getEntries().map((one) => one.duration)));
  const frame = (now) => {
    if (!isOn) return;
    if (last) gaps.push(now - last);
    last = now;
    requestAnimationFrame(frame);
  };
  window.benchFrames = {
    start: () => {
      [gaps, long, last, isOn] = [[], [], 0, true];
      observer.observe({ type: "longtask" });
      requestAnimationFrame(frame);
    },
    stop: () => {
      isOn = false;
      long.push(...observer.takeRecords().map((one) => one.duration));
      observer.disconnect();
      return { gaps, long };
    },
  };
})();
