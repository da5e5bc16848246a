// Printing opens all closed parts, and closes them again afterwards.
(() => {
  let opened = [];
  addEventListener("beforeprint", () => {
    opened = [...document.querySelectorAll("details:not([open])")].filter((d) => !d.classList.contains("alternative"));
    opened.forEach((d) => { d.open = true; });
  });
  addEventListener("afterprint", () => opened.forEach((d) => { d.open = false; }));
  // A link to a line in a closed part opens that part.
  const reveal = () => {
    const target = location.hash && document.getElementById(decodeURIComponent(location.hash.slice(1)));
    for (let d = target && target.closest("details"); d; d = d.parentElement.closest("details")) d.open = true;
    if (target && target.closest("details")) target.scrollIntoView({ block: "center" });
  };
  addEventListener("hashchange", reveal);
  reveal();
})();
