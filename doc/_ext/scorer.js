// Pages about the inside of the package come after those for its users.
var Scorer = {
  score: ([page, , , , score]) => (/^(architecture|add_|decisions)/.test(page) ? score - 10 : score),
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: {0: 15, 1: 5, 2: -5},
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
