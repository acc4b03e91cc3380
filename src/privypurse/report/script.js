/* Draws the figures, re-draws them for another scheme, for paper and for a choice, and lets keys walk through their points. */
(function () {
  "use strict";
  const root = document.documentElement;
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const PRINT_WIDTH = 620;
  const config = {
    displaylogo: false,
    responsive: true,
    scrollZoom: false,
    doubleClick: "reset",
    modeBarButtons: [["zoomIn2d", "zoomOut2d", "resetScale2d", "toImage"]],
  };
  const chosen = {};
  const walkers = {};
  let printing = false;

  // Plotly reads a little markup in texts; what people named is not markup.
  const plain = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
  const style = (name) => getComputedStyle(root).getPropertyValue(name).trim();

  // Figures name colours by style variables, which know the scheme.
  function coloured(value) {
    if (Array.isArray(value)) return value.map(coloured);
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, coloured(inner)]));
    }
    const named = typeof value === "string" && /^var\((--[a-z]+)\)$/.exec(value);
    return named ? style(named[1]) : value;
  }

  function drawing(figure) {
    return figure.drawings[chosen[figure.key] || 0];
  }

  function layout(figure, element) {
    const own = coloured(drawing(figure).layout);
    const axis = {
      gridcolor: style("--grid"), linecolor: style("--rule"), zerolinecolor: style("--rule"), fixedrange: false,
      tickfont: { color: style("--quiet"), size: 12 }, separatethousands: true,
    };
    const titled = (given) => ({
      ...axis, ...given, title: { ...(given.title || {}), font: { color: style("--quiet"), size: 12.5 }, standoff: 10 },
    });
    const narrow = (printing ? PRINT_WIDTH : element.clientWidth) < 460;
    const made = {
      font: { family: style("--sans"), color: style("--ink"), size: 12.5 },
      paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
      margin: { l: narrow ? 8 : 16, r: narrow ? 8 : 16, t: 12, b: 8 },
      height: Number(element.dataset.height), dragmode: false, hovermode: "closest", showlegend: false,
      hoverlabel: {
        bgcolor: style("--ink"), bordercolor: style("--ink"), align: "left", namelength: -1,
        font: { color: style("--sheet"), family: style("--sans"), size: 13 },
      },
      legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom" },
      modebar: { bgcolor: "rgba(0,0,0,0)", color: style("--quiet"), activecolor: style("--accent") },
      ...own,
      xaxis: titled(own.xaxis || {}), yaxis: titled(own.yaxis || {}),
    };
    if (made.xaxis.zeroline) made.xaxis.zerolinecolor = style("--quiet");
    if (narrow && made.yaxis.ticktext) {
      made.yaxis.ticktext = made.yaxis.ticktext.map((text) => (text.length > 17 && !text.includes("<br>") ? shortened(text, 16) : text));
    }
    if (printing) made.width = PRINT_WIDTH;
    else made.autosize = true;
    return made;
  }

  // Cuts after so many characters, counting an entity such as "&lt;" as one.
  function shortened(text, most) {
    const letters = text.match(/&[a-z]+;|[\s\S]/gu);
    return letters.length > most ? letters.slice(0, most).join("") + "\u2026" : text;
  }

  function data(figure) {
    const { data: series, spoken } = drawing(figure);
    return series.map((one, place) => ({
      ...coloured(one), text: spoken[place].map(plain), textposition: one.type === "bar" ? "none" : undefined,
      hovertemplate: "%{text}<extra></extra>",
    }));
  }

  function draw(figure) {
    const element = document.getElementById(figure.key);
    return Plotly.react(element, data(figure), layout(figure, element), { ...config, responsive: !printing });
  }

  function drawAll() {
    for (const figure of figures) draw(figure);
  }

  /* Keys: all points of all series, in the order in which they are drawn. */
  function say(figure, text) {
    document.getElementById(figure.key + "-live").textContent = text;
  }

  function walk(figure, event) {
    const moves = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1, Home: -Infinity, End: Infinity };
    const element = document.getElementById(figure.key);
    if (event.key === "Escape") {
      leave(figure);
      return;
    }
    if (!(event.key in moves) || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const points = drawing(figure).spoken.flatMap((said, curve) => said.map((text, point) => ({ curve, point, text })));
    const before = walkers[figure.key] === undefined ? (moves[event.key] > 0 ? -1 : points.length) : walkers[figure.key];
    const at = Math.min(points.length - 1, Math.max(0, before + moves[event.key]));
    walkers[figure.key] = at;
    const { curve, point, text } = points[at];
    Plotly.Fx.hover(element, [{ curveNumber: curve, pointNumber: point }]);
    say(figure, text);
  }

  function leave(figure) {
    delete walkers[figure.key];
    Plotly.Fx.unhover(document.getElementById(figure.key));
    say(figure, "");
  }

  for (const figure of figures) {
    const element = document.getElementById(figure.key);
    draw(figure);
    element.addEventListener("keydown", (event) => walk(figure, event));
    element.addEventListener("blur", () => leave(figure));
  }

  for (const select of document.querySelectorAll("[data-choose]")) {
    const figure = figures.find((one) => one.key === select.dataset.choose);
    select.addEventListener("change", () => {
      chosen[figure.key] = Number(select.value);
      delete walkers[figure.key];
      const { caption } = drawing(figure);
      document.getElementById(figure.key + "-caption").textContent = caption;
      document.getElementById(figure.key).setAttribute("aria-label", figure.title + ". " + caption);
      say(figure, "");
      draw(figure);
    });
  }

  /* Another scheme, and paper: light, as wide as the sheet, with what must be on it open. */
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  function toPaper(on) {
    if (printing === on) return;
    printing = on;
    root.toggleAttribute("data-print", on);
    for (const one of document.querySelectorAll("details[data-printed]")) {
      if (on) {
        one.dataset.wasOpen = one.open;
        one.open = true;
      } else {
        one.open = one.dataset.wasOpen === "true";
      }
    }
    drawAll();
  }
  addEventListener("beforeprint", () => toPaper(true));
  addEventListener("afterprint", () => toPaper(false));
  matchMedia("print").addEventListener("change", (query) => toPaper(query.matches));

  for (const button of document.querySelectorAll("[data-copy]")) {
    button.addEventListener("click", async () => {
      const text = button.parentElement.querySelector("code");
      const label = button.firstChild;
      try {
        await navigator.clipboard.writeText(text.textContent);
        label.data = "Copied";
      } catch {
        // Without leave to copy, select it: the usual keys copy then.
        getSelection().selectAllChildren(text);
        label.data = "Selected";
      }
      setTimeout(() => { label.data = "Copy"; }, 2000);
    });
  }
})();
