"use strict";
// Comfort only: without this script the page still shows every score.
(() => {
  const tools = document.querySelector(".tools");
  const [from, to, which, words] = ["from", "to", "which", "filter"].map((id) => document.getElementById(id));
  const rows = [...document.querySelectorAll("#flips tbody tr")];
  const marks = { won: "▲ won", lost: "▼ lost", same: "same", "": "" };
  const score = (row, at) => row.cells[at + 2].dataset.score;
  function change(row) {
    const [before, after] = [score(row, Number(from.value)), score(row, Number(to.value))];
    if (before === undefined || after === undefined) return "";
    return Number(after) > Number(before) ? "won" : Number(after) < Number(before) ? "lost" : "same";
  }
  function sift() {
    const wanted = words.value.toLowerCase().split(/\s+/).filter(Boolean);
    const counts = { won: 0, lost: 0, same: 0, "": 0 };
    for (const row of rows) {
      const found = change(row);
      counts[found] += 1;
      row.cells[1].textContent = marks[found];
      row.cells[1].className = `mark ${found}`;
      const task = row.cells[0].textContent.toLowerCase();
      row.hidden = (which.value && which.value !== found) || !wanted.every((word) => task.includes(word));
    }
    const left = rows.filter((row) => !row.hidden).length;
    document.getElementById("matches").textContent = `${counts.won} won, ${counts.lost} lost, ${counts.same} the same; ${left} shown`;
  }
  for (const input of [from, to, which, words]) input.addEventListener("input", sift);
  tools.hidden = false;
  sift();
})();
