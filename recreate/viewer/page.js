"use strict";
// Comfort only: without this script the page still reads, folds and links.
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];

  // A link into a fold opens it, also when the same link is followed twice.
  function reveal(id, smooth) {
    const target = id && document.getElementById(id);
    if (!target) return;
    for (let at = target; at; at = at.parentElement) if (at.localName === "details") at.open = true;
    const body = target.querySelector(":scope > details.body");
    if (body) body.open = true;
    target.hidden = false;
    target.scrollIntoView({ block: "start", behavior: smooth ? "auto" : "instant" });
    target.focus({ preventScroll: true });
  }
  const named = () => decodeURIComponent(location.hash.slice(1));
  addEventListener("hashchange", () => reveal(named(), false));
  document.addEventListener("click", (event) => {
    const link = event.target.closest('a[href^="#"]');
    if (link && link.getAttribute("href") === location.hash) reveal(named(), true);
  });

  // Keys.
  const revisions = all("article.revision");
  const keys = document.getElementById("keys");
  function inView() {
    const near = innerHeight / 3;
    return revisions.findLastIndex((r) => r.getBoundingClientRect().top <= near);
  }
  function go(step) {
    const held = revisions.indexOf(document.activeElement);
    const next = Math.max(0, Math.min(revisions.length - 1, (held >= 0 ? held : inView()) + step));
    const revision = revisions[next];
    if (!revision) return;
    history.replaceState(null, "", "#" + revision.id);
    revision.scrollIntoView({ block: "start", behavior: "instant" });
    revision.focus({ preventScroll: true });
  }
  function fold() {
    const active = document.activeElement;
    const own = active.matches("details") ? active : active.closest("details");
    const revision = active.closest("article.revision") || revisions[Math.max(0, inView())];
    const found = own || (revision && revision.querySelector("details.body"));
    if (!found) return;
    found.open = !found.open;
    if (!found.open && found !== active && found.contains(active)) found.querySelector("summary").focus();
  }
  addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || keys.open) return;
    if (event.target.closest("input, textarea, select")) return;
    const action = { j: () => go(1), k: () => go(-1), o: fold, "?": () => keys.showModal() }[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });
  const button = document.querySelector(".keys-button");
  button.hidden = false;
  button.addEventListener("click", () => keys.showModal());
  keys.querySelector("button").addEventListener("click", () => keys.close());

  // The filter of the traces.
  const tools = document.querySelector(".tools");
  if (tools) {
    const [words, failed, cited] = ["filter", "failed", "cited"].map((id) => document.getElementById(id));
    const traces = all("details.trace");
    const texts = new Map();
    const text = (trace) => texts.get(trace) ?? texts.set(trace, trace.textContent.toLowerCase()).get(trace);
    const sift = () => {
      const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
      for (const trace of traces) {
        trace.hidden = (failed.checked && trace.dataset.failed === "0") || (cited.checked && trace.dataset.cited === "0")
          || !wanted.every((word) => text(trace).includes(word));
      }
      const left = traces.filter((trace) => !trace.hidden).length;
      document.getElementById("matches").textContent = left === traces.length ? "" : `${left} of ${traces.length}`;
    };
    for (const input of [words, failed, cited]) input.addEventListener("input", sift);
    const every = document.getElementById("fold-all");
    every.addEventListener("click", () => {
      const open = every.textContent === "Open all";
      for (const trace of traces) if (!trace.hidden) trace.open = open;
      every.textContent = open ? "Fold all" : "Open all";
    });
    tools.hidden = false;
  }

  if (location.hash) reveal(named(), false);
})();
