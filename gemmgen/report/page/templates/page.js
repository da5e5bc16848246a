// The page works without this script: it is then one long page. With it there is one section at a time.
const all = (query, root = document) => [...root.querySelectorAll(query)];
const made = (tag, props = {}, ...children) => {
  const element = Object.assign(document.createElement(tag), props);
  element.append(...children);
  return element;
};

// --- One section at a time: the hash names it, or something in it -----------------------------------------------
const sections = all("main > section");
const show = () => {
  const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const section = (target && target.closest("main > section")) || sections[0];
  sections.forEach((s) => s.classList.toggle("current", s === section));
  document.body.dataset.at = section.id;
  all("nav.rungs a").forEach((a) => {
    if (a.hash === `#${section.id}`) a.setAttribute("aria-current", "page");
    else a.removeAttribute("aria-current");
    if (a.hash === `#${section.id}`) a.scrollIntoView({ block: "nearest", inline: "nearest" });
  });
  if (!target || target === section) return scrollTo(0, 0);
  // A link to a line opens the closed parts around it.
  for (let d = target.closest("details"); d; d = d.parentElement.closest("details")) d.open = true;
  const whole = target.closest(".merged")?.previousElementSibling.querySelector(".whole");
  if (whole && target.classList.contains("far")) whole.checked = true;
  target.scrollIntoView({ block: "center" });
};
document.body.classList.add("paged");
addEventListener("hashchange", show);
addEventListener("keydown", (event) => {
  const rel = { ArrowLeft: "prev", ArrowRight: "next" }[event.key];
  const busy = event.altKey || event.ctrlKey || event.metaKey || event.target.closest("input, .code, .scroll");
  if (rel && !busy) document.querySelector(`.current .steps [rel="${rel}"]`)?.click();
});

// --- Theme, copy, save ------------------------------------------------------------------------------------------
const THEMES = ["system", "light", "dark"];
const theme = made("button", { type: "button" });
const themed = (name) => {
  if (name === "system") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = name;
  theme.textContent = `Theme: ${name}`;
};
theme.onclick = () => {
  const now = document.documentElement.dataset.theme || "system";
  themed(THEMES[(THEMES.indexOf(now) + 1) % THEMES.length]);
};
themed("system");
document.querySelector("nav.rungs ol").append(made("li", {}, theme));

const shownText = (pre) => all(".line", pre).filter((l) => l.checkVisibility() && l.tagName !== "DEL")
  .map((l) => l.textContent.replaceAll("\u200b", "")).join("\n") + "\n";
const copied = async (button, text) => {
  const area = made("textarea", { value: text });
  document.body.append(area);
  area.select();
  const done = document.execCommand("copy"); // the page may be a file, where the clipboard's own interface is refused
  area.remove();
  button.textContent = done ? "Copied" : "Select the text and copy it";
  setTimeout(() => { button.textContent = "Copy"; }, 1500);
};
all(".code").forEach((pre) => {
  const button = made("button", { type: "button", className: "tool copy", textContent: "Copy" });
  button.setAttribute("aria-label", `Copy ${pre.getAttribute("aria-label")}`);
  button.onclick = () => copied(button, shownText(pre));
  pre.after(button);
});

const standalone = (svg) => {
  const copy = svg.cloneNode(true);
  const style = document.createElementNS(svg.namespaceURI, "style");
  style.textContent = document.getElementById("picture-css").textContent;
  copy.prepend(style, document.querySelector(".defs defs").cloneNode(true));
  const chosen = document.documentElement.dataset.theme;
  if (chosen) copy.dataset.theme = chosen;
  return new XMLSerializer().serializeToString(copy);
};
all("main svg").forEach((svg) => {
  const button = made("button", { type: "button", className: "tool save", textContent: "Save as SVG" });
  button.setAttribute("aria-label", `Save as SVG: ${svg.querySelector("title").textContent}`);
  button.onclick = () => {
    const href = URL.createObjectURL(new Blob([standalone(svg)], { type: "image/svg+xml" }));
    made("a", { href, download: `${svg.id}.svg` }).click();
    setTimeout(() => URL.revokeObjectURL(href), 1000);
  };
  (svg.closest(".scroll") || svg).after(button);
});

// --- A lane, its element of C, its bank, its lines; and the other way -------------------------------------------
const PITCH = 17; // of the cells of a row, as they are drawn
const lanes = (e) => e.dataset.l.split(" ");
const banksOf = (e) => {
  const first = Math.round(e.x.baseVal.value / PITCH);
  return Array.from({ length: Math.round((e.getBBox().width + 1) / PITCH) }, (_, i) => first + i);
};
const lightLines = (rung, spec, cuda) => {
  const name = rung.id.replace("rung-", "");
  [spec && `${name}-spec-${spec}`, cuda && `${name}-cuda-${cuda}`].filter(Boolean)
    .forEach((id) => document.getElementById(id)?.classList.add("lit"));
};
const clear = (rung) => all(".lit", rung).forEach((e) => e.classList.remove("lit"));
const light = (rung, lane, access) => {
  clear(rung);
  const cells = all("[data-l]", rung).filter((e) => lanes(e).includes(lane));
  cells.forEach((e) => e.classList.add("lit"));
  const own = cells.filter((e) => e.dataset.c).map((e) => e.dataset.c.split(" "));
  const banks = cells.filter((e) => access?.contains(e) && access.querySelector(".bank"));
  const said = [`lane ${lane} of warp 0 computes C at row ${own[0]?.[0]}, column ${own[0]?.[1]} of the tile` +
    (own.length > 1 ? ` and ${own.length - 1} more piece${own.length > 2 ? "s" : ""}` : "")];
  if (banks.length) said.push(`bank ${[...new Set(banks.flatMap(banksOf))].join(", ")}`);
  if (access) {
    lightLines(rung, access.dataset.spec, access.dataset.cuda);
    if (access.dataset.cuda) said.push(`CUDA line ${access.dataset.cuda}`);
    if (access.dataset.spec) said.push(`spec line ${access.dataset.spec}`);
  }
  all(".lane-bar", rung).forEach((bar) => {
    bar.querySelector("input").value = lane;
    bar.querySelector("output").textContent = said.join("; ");
  });
};
const lightAccess = (rung, kind, line) => {
  clear(rung);
  all(`[data-${kind}="${line}"]`, rung).forEach((e) => {
    lightLines(rung, e.dataset.spec, e.dataset.cuda);
    all("rect[data-l]", e).forEach((cell) => cell.classList.add("lit"));
    e.querySelector("summary, th")?.classList.add("lit");
  });
};
const pointed = (event) => {
  const rung = event.target.closest?.("section.rung");
  const cell = event.target.closest?.("[data-l]");
  if (!rung) return;
  if (cell) return light(rung, lanes(cell)[0], cell.closest("details.access"));
  const line = event.target.closest(".line[id]");
  const row = event.target.closest("tr[data-cuda], details.access > summary");
  const access = row?.closest("[data-cuda]");
  if (line) lightAccess(rung, line.id.includes("-cuda-") ? "cuda" : "spec", line.dataset.n);
  else if (access) lightAccess(rung, "cuda", access.dataset.cuda);
};
document.addEventListener("pointerover", pointed);
document.addEventListener("focusin", pointed);
all("section.rung").forEach((rung) => {
  if (!rung.querySelector("[data-c]")) return;
  // A bar sticks to the bottom of the screen beside the pictures of lanes only: elsewhere it would cover text.
  [rung.querySelector(".drawn"), rung.querySelector("details.access")?.parentElement].filter(Boolean).forEach((place) => {
    const input = made("input", { type: "number", min: 0, max: 31, value: 0 });
    input.oninput = () => light(rung, input.value, all("details.access[open]", rung)[0]);
    place.append(made("div", { className: "lane-bar" }, made("label", {}, "Lane ", input), made("output")));
  });
});

// --- A turn of the pipeline, step by step: the letters of the list become the numbers of the turn --------------
const TURNS = 8; // as many as the timeline has
all(".stepper").forEach((box) => {
  const rung = box.closest("section.rung");
  const list = box.querySelector(".moves[data-depth]");
  const moves = all("li", list), depth = Number(list.dataset.depth);
  const words = all("[data-t], [data-s]", box).map((e) => [e, e.textContent]);
  const said = made("output");
  let at = -1;
  const to = (next) => {
    at = Math.min(Math.max(next, -1), TURNS * moves.length - 1);
    const turn = Math.max(0, Math.floor(at / moves.length)), move = moves[at - turn * moves.length];
    words.forEach(([e, letters]) => {
      const tile = turn + Number(e.dataset.t ?? e.dataset.s);
      e.textContent = at < 0 ? letters : e.dataset.t ? tile : tile % depth;
    });
    clear(rung);
    moves.forEach((m) => m.removeAttribute("aria-current"));
    said.textContent = at < 0 ? "" : `turn ${turn}, step ${at - turn * moves.length + 1} of ${moves.length}`;
    if (!move) return;
    move.setAttribute("aria-current", "step");
    lightLines(rung, "", move.dataset.cuda);
    const [what, of] = (move.dataset.bar || "").split(" ");
    all(`[data-k="${what} ${turn + Number(of)}"]`, rung).forEach((bar) => bar.classList.add("lit"));
  };
  const button = (text, step) => made("button", { type: "button", textContent: text, onclick: () => to(step()) });
  const turns = made("div", { className: "turns" }, button("Previous step", () => at - 1), button("Next step", () => at + 1),
    button("Next turn", () => (Math.floor(at / moves.length) + 1) * moves.length), button("Reset", () => -1), said);
  list.before(turns);
});

// --- Print: closed parts open, and close again afterwards -------------------------------------------------------
let opened = [];
addEventListener("beforeprint", () => {
  opened = all("details:not([open])").filter((d) => !d.classList.contains("alternative"));
  opened.forEach((d) => { d.open = true; });
});
addEventListener("afterprint", () => opened.forEach((d) => { d.open = false; }));
show();
