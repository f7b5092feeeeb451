"use strict";
(function () {
  document.documentElement.classList.add("scripted");
  const all = (selector, within) => Array.from((within || document).querySelectorAll(selector));
  const raw = document.getElementById("data").textContent;
  const data = JSON.parse(raw).data;

  // Tables: a click on a header sorts, a word in the field above filters.
  function valueOf(cell) {
    const value = cell.dataset.value === undefined ? cell.textContent : cell.dataset.value;
    if (value === "") return null;
    if (/^0x[0-9a-f]+$/.test(value)) return BigInt(value);
    return value.trim() !== "" && isFinite(value) ? Number(value) : value.toLowerCase();
  }
  function order(a, b) {
    if (a === null || b === null) return a === b ? 0 : a === null ? 1 : -1;
    if (typeof a === "string" || typeof b === "string") return String(a) < String(b) ? -1 : String(a) > String(b) ? 1 : 0;
    return a < b ? -1 : a > b ? 1 : 0;
  }
  function sortBy(table, column, header) {
    const down = header.getAttribute("aria-sort") !== "descending";
    all("th", table).forEach((one) => one.removeAttribute("aria-sort"));
    header.setAttribute("aria-sort", down ? "descending" : "ascending");
    const rows = all("tbody tr", table).map((row) => [valueOf(row.cells[column]), row]);
    rows.sort((a, b) => a[0] === null || b[0] === null ? order(a[0], b[0]) : down ? order(b[0], a[0]) : order(a[0], b[0]));
    table.tBodies[0].append(...rows.map((pair) => pair[1]));
  }
  function addFilter(table) {
    const label = document.createElement("label"), input = document.createElement("input");
    label.className = "filter";
    input.type = "search";
    input.setAttribute("autocomplete", "off");
    label.append("Filter: " + table.caption.textContent + " ", input);
    input.addEventListener("input", () => {
      const wanted = input.value.toLowerCase();
      all("tbody tr", table).forEach((row) => { row.hidden = !row.textContent.toLowerCase().includes(wanted); });
    });
    table.parentElement.before(label);
  }
  all("table.sorted").forEach((table) => {
    all("th", table).forEach((header, column) => {
      if (!header.textContent || table.tBodies[0].rows.length < 2) return;
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = header.textContent;
      header.replaceChildren(button);
      button.addEventListener("click", () => sortBy(table, column, header));
    });
    if (table.tBodies[0].rows.length > 8) addFilter(table);
  });

  // Pictures whose parts can be chosen: one of them is in the order of tabs, arrows go from part to part.
  function choosable(parts, choose) {
    parts.forEach((part, at) => {
      part.setAttribute("role", "button");
      part.setAttribute("aria-label", part.querySelector("title").textContent);
      part.setAttribute("tabindex", at ? "-1" : "0");
      part.addEventListener("click", () => choose(part));
      part.addEventListener("keydown", (event) => {
        const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
        if (event.key === "Enter" || event.key === " ") choose(part);
        else if (!step) return;
        else move(parts.filter((one) => !one.classList.contains("gone")), part, step);
        event.preventDefault();
      });
    });
  }
  function move(parts, from, step) {
    const to = parts[Math.min(Math.max(parts.indexOf(from) + step, 0), parts.length - 1)];
    from.setAttribute("tabindex", "-1");
    to.setAttribute("tabindex", "0");
    to.focus();
  }
  function write(text, room) {
    const whole = text.dataset.text || text.parentElement.dataset.name;
    text.textContent = room < 3 ? "" : whole.length > room ? whole.slice(0, room - 1) + "…" : whole;
  }
  function place(node, x, y, width, height) {
    const rect = node.querySelector("rect");
    rect.setAttribute("x", x);
    rect.setAttribute("width", width);
    rect.setAttribute("y", y);
    if (height) rect.setAttribute("height", height);
    all("text", node).forEach((text, at) => {
      text.setAttribute("x", x);
      text.setAttribute("y", y);
      write(text, height && height < 16 + 15 * at ? 0 : Math.floor((width - 8) / 6.8));
    });
  }
  const box = (node) => ["x", "y", "w", "h"].map((name) => Number(node.dataset[name]));

  const treemap = document.getElementById("treemap");
  if (treemap) {
    const tiles = all(".tile", treemap);
    let shown = null;
    choosable(tiles, (tile) => {
      shown = shown === tile.dataset.group ? null : tile.dataset.group;
      const [x, y, w, h] = shown === null ? [0, 0, 1000, 420] : box(tiles.find((one) => one.dataset.group === shown));
      treemap.dataset.zoom = shown === null ? "" : shown;
      tiles.forEach((one) => {
        const [left, top, width, height] = box(one);
        one.classList.toggle("gone", shown !== null && one.dataset.group !== shown);
        place(one, (left - x) * 1000 / w, (top - y) * 420 / h, width * 1000 / w, height * 420 / h);
      });
    });
  }

  const icicle = document.getElementById("icicle");
  if (icicle) {
    const nodes = all(".node", icicle);
    let wide = null;
    choosable(nodes, (node) => {
      wide = wide === node ? null : node;
      const left = wide ? Number(wide.dataset.x) : 0, width = wide ? Number(wide.dataset.w) : 1000;
      icicle.dataset.zoom = wide ? wide.dataset.name : "";
      nodes.forEach((one) => {
        const x = Number(one.dataset.x), w = Number(one.dataset.w);
        const from = Math.max((x - left) * 1000 / width, 0), to = Math.min((x + w - left) * 1000 / width, 1000);
        one.classList.toggle("gone", to - from < 0.5);
        place(one, from, Number(one.dataset.depth) * 22, Math.max(to - from, 0));
      });
    });
    const search = document.getElementById("icicle-search");
    search.addEventListener("input", () => {
      const wanted = search.value.toLowerCase();
      const found = nodes.filter((node) => node.dataset.name.toLowerCase().includes(wanted));
      nodes.forEach((node) => node.classList.toggle("dim", wanted !== "" && !found.includes(node)));
      document.getElementById("icicle-found").textContent = wanted ? found.length + " of " + nodes.length : "";
    });
  }

  // Lines: the sample below the pointer, or where the arrows went, in words.
  all("svg.lines").forEach((svg) => {
    const moments = all(".moment", svg), cursor = svg.querySelector(".cursor");
    const output = svg.closest("figure").querySelector("output"), place = cursor.getAttribute("d");
    let at = -1;
    function show(number) {
      at = Math.min(Math.max(number, 0), moments.length - 1);
      cursor.setAttribute("d", place.replace(/^M\S+/, "M" + moments[at].dataset.at));
      output.textContent = moments[at].querySelector("title").textContent;
    }
    moments.forEach((moment, number) => moment.addEventListener("pointerenter", () => show(number)));
    svg.parentElement.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
      if (!step) return;
      show(at < 0 ? 0 : at + step);
      event.preventDefault();
    });
  });

  // Maps: the cell below the pointer, or where the arrows went, in words.
  function sizeText(bytes) {
    const units = ["B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    let value = Number(bytes), at = 0;
    while (value >= 1023.5 && at < units.length - 1) { value /= 1024; at += 1; }
    return (value < 99.95 ? value.toFixed(1).replace(/\.0$/, "") : value.toFixed(0)) + " " + units[at];
  }
  function tell(map, at, name) {
    const part = map.parts.find((one) => at >= one.first && at < one.first + one.cells);
    const start = BigInt(part.start) + BigInt(at - part.first) * BigInt(map.cell_bytes);
    const whole = start + BigInt(map.cell_bytes), end = whole < BigInt(part.end) ? whole : BigInt(part.end);
    const uses = Object.entries(map.cells.uses).filter((pair) => pair[1][at]).map((pair) => pair[0] + " " + sizeText(pair[1][at] * map.page_bytes));
    const block = map.cells.block[at] ? "; largest block " + sizeText(map.cells.largest[at]) + " at " + map.cells.block[at] : "";
    return "0x" + start.toString(16) + "–0x" + end.toString(16) + ", " + name + ": " + uses.join(", ") + block;
  }
  all("svg.cells").forEach((svg) => {
    const map = data[svg.dataset.map], columns = Number(svg.dataset.columns), labels = all("text.part", svg);
    const [left, width, height] = [svg.dataset.left, svg.dataset.cell, svg.dataset.row].map(Number);
    const tops = labels.map((label) => Number(label.dataset.y)), begins = labels.map((label) => Number(label.dataset.column));
    const output = svg.closest("figure").querySelector("output"), cursor = svg.querySelector(".cursor");
    const last = map.cells.largest.length - 1;
    let at = -1;
    function show(cell) {
      if (cell < 0 || cell > last) return;
      at = cell;
      const number = map.parts.findIndex((one) => cell >= one.first && cell < one.first + one.cells);
      const within = cell - map.parts[number].first;
      cursor.setAttribute("x", left + (begins[number] + within % columns) * width);
      cursor.setAttribute("y", tops[number] + Math.floor(within / columns) * height);
      let named = number;
      while (!labels[named].textContent) named -= 1;
      output.textContent = tell(map, cell, labels[named].textContent.replace(/ 0x[0-9a-f]+$/, ""));
    }
    svg.addEventListener("pointermove", (event) => {
      const spot = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
      const across = Math.floor((spot.x - left) / width);
      let number = 0;
      tops.forEach((top, at) => { if (top <= spot.y && begins[at] <= across) number = at; });
      const column = across - begins[number], row = Math.floor((spot.y - tops[number]) / height);
      const within = row * columns + column;
      if (column >= 0 && column < columns && row >= 0 && within < map.parts[number].cells) show(map.parts[number].first + within);
    });
    svg.parentElement.addEventListener("keydown", (event) => {
      const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: columns, ArrowUp: -columns }[event.key];
      if (!step) return;
      show(at < 0 ? 0 : Math.min(Math.max(at + step, 0), last));
      event.preventDefault();
    });
  });

  document.getElementById("save").addEventListener("click", () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([raw], { type: "application/json" }));
    link.download = "report.json";
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  });
})();
