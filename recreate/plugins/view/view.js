"use strict";
// Comfort and liveness: without this script the pages still read, fold, link and take a decision.
(() => {
  const all = (selector, root = document) => [...root.querySelectorAll(selector)];

  // A link into a fold opens it.
  function reveal(id) {
    const target = id && document.getElementById(id);
    if (!target) return;
    for (let at = target; at; at = at.parentElement) if (at.localName === "details") at.open = true;
    const body = target.querySelector(":scope > details.body");
    if (body) body.open = true;
    target.scrollIntoView({ block: "start", behavior: "instant" });
    target.focus({ preventScroll: true });
  }
  const named = () => decodeURIComponent(location.hash.slice(1));
  addEventListener("hashchange", () => reveal(named()));

  // Keys.
  const keys = document.getElementById("keys");
  const places = () => all("tr.row, li.row, article.revision, li.step, li.message");
  function go(step) {
    const rows = places();
    const held = rows.findIndex((r) => r === document.activeElement || r.contains(document.activeElement));
    const near = held >= 0 ? held : rows.findLastIndex((r) => r.getBoundingClientRect().top <= innerHeight / 3);
    const row = rows[Math.max(0, Math.min(rows.length - 1, near + step))];
    if (!row) return;
    const link = row.matches(".row") && row.querySelector("a");
    row.scrollIntoView({ block: row.matches(".row") ? "nearest" : "start", behavior: "instant" });
    if (link) link.focus({ preventScroll: true });
    else {
      row.tabIndex = -1;
      row.focus({ preventScroll: true });
    }
  }
  function fold() {
    const active = document.activeElement;
    const own = active.closest("details") || active.querySelector?.("details");
    if (own) own.open = !own.open;
  }
  const follow = (rel) => document.querySelector(`a[rel="${rel}"]`)?.click();
  addEventListener("keydown", (event) => {
    if (!keys || event.ctrlKey || event.metaKey || event.altKey || keys.open) return;
    if (event.target.closest("input, textarea, select")) return;
    const action = {
      j: () => go(1), k: () => go(-1), o: fold, n: () => follow("next"), p: () => follow("prev"),
      "/": () => document.querySelector('main input[name="q"], .find input').focus(), "?": () => keys.showModal(),
    }[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });
  const button = document.querySelector(".keys-button");
  if (keys && button) {
    button.hidden = false;
    button.addEventListener("click", () => keys.showModal());
    keys.querySelector("button").addEventListener("click", () => keys.close());
  }

  // What changed is fetched once more, part by part; folds stay as they are, and so does the focus.
  const alarm = document.getElementById("alarm");
  const say = (text) => {
    if (!alarm) return;
    alarm.hidden = !text;
    alarm.textContent = text;
  };
  let busy = false, again = false, last = 0;
  async function refresh() {
    if (busy) return void (again = true);
    busy = true;
    const wait = last + 1000 - performance.now();
    if (wait > 0) await new Promise((done) => setTimeout(done, wait));
    again = false;
    last = performance.now();
    try {
      const answer = await fetch(location.pathname + location.search, { credentials: "same-origin" });
      const fresh = new DOMParser().parseFromString(await answer.text(), "text/html");
      if (answer.status === 404) say("This is not here any more: it was moved or deleted.");
      const sizes = document.getElementById("sizes"), others = fresh.getElementById("sizes");
      if (sizes && others && sizes.getAttribute("href") !== others.getAttribute("href")) sizes.setAttribute("href", others.getAttribute("href"));
      for (const part of answer.ok ? all("[data-live]") : []) {
        const now = fresh.getElementById(part.id);
        if (!now || now.outerHTML === part.outerHTML || part.contains(document.activeElement) && part.querySelector("form")) continue;
        const open = new Map(all("details", part).map((d, n) => [d.id || n, d.open]));
        const held = part.contains(document.activeElement) && places().indexOf(document.activeElement.closest(".row, .step"));
        const node = document.importNode(now, true);
        all("details", node).forEach((d, n) => { if (open.has(d.id || n)) d.open = open.get(d.id || n); });
        part.replaceWith(node);
        if (held !== false && held >= 0) (places()[held]?.querySelector("a") || places()[held])?.focus({ preventScroll: true });
      }
      if (answer.ok && fresh.querySelector("[data-again]")) again = true;
    } catch {
      say("The server does not answer.");
    }
    busy = false;
    if (again) setTimeout(refresh, 1000);
  }

  // Followed while it happens. A hidden page lets go, since a browser opens only a few streams, and goes on where it was.
  const address = document.body.dataset.events;
  const list = document.getElementById("event-list"), counted = document.getElementById("counted");
  let source, seen = 0, at = "";
  function listen() {
    if (!address || source) return;
    const url = new URL(address, location.href);
    if (at) url.searchParams.set("at", at);
    source = new EventSource(url);
    source.onopen = () => say("");
    source.onerror = () => say("The connection is lost; it is tried again.");
    source.addEventListener("changed", refresh);
    source.addEventListener("gone", (event) => {
      say(JSON.parse(event.data).text);
      source.close();
    });
    source.addEventListener("journal", (event) => {
      const told = JSON.parse(event.data);
      at = event.lastEventId;
      seen += told.count;
      if (list) {
        counted.textContent = seen.toLocaleString("en");
        const rows = told.lines.slice(-200).map((line) => {
          const row = document.createElement("li");
          row.textContent = line;
          return row;
        });
        list.prepend(...rows.reverse());
        while (list.childElementCount > 200) list.lastElementChild.remove();
      }
      refresh();
    });
  }
  function pause() {
    source?.close();
    source = undefined;
  }
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) return pause();
    listen();
    if (address) refresh();
  });
  addEventListener("pagehide", pause);
  if (!document.hidden) listen();
  if (document.querySelector("[data-again]")) setTimeout(refresh, 1000);
  if (location.hash) reveal(named());
})();
