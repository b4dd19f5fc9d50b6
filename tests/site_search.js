// Asks the search of the built site, as a browser would, and prints the first pages of each answer, and those
// listed twice.
const fs = require("fs"), vm = require("vm");
const [site, ...queries] = process.argv.slice(2);
const nothing = () => {};
Object.assign(globalThis, {
  window: globalThis,
  document: { addEventListener: nothing, readyState: "loading", getElementById: nothing },
  SPHINX_HIGHLIGHT_ENABLED: false,
});
const names = ["base-stemmer", "english-stemmer", "doctools", "searchtools", "language_data"];
const scripts = [...names.map(name => `${site}/_static/${name}.js`), `${site}/searchindex.js`];
const read = name => (fs.existsSync(name) ? fs.readFileSync(name, "utf8") : "");
vm.runInThisContext(scripts.map(read).join("\n") + `
function pages(query) {
  const found = Search._performSearch(...Search._parseQuery(query)).reverse();
  const first = [...new Set(found.map(result => result[0]))].slice(0, 3);
  const shown = found.filter(result => result[6] !== "object").map(result => result[0]);
  return { first, twice: shown.filter((page, k) => shown.indexOf(page) < k) };
}`);
console.log(JSON.stringify(Object.fromEntries(queries.map(query => [query, pages(query)]))));
