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

// A query of several words finds only pages with all of them. Here it finds pages with most of
// them, where rare words and words of titles count more, and index entries made of its words.
{
  const withAll = Search.performTermsSearch;
  const stem = word => new Stemmer().stemWord(word);
  const wordsOf = text => splitQuery(text).filter(word => !stopwords.has(word)).map(stem);
  Search.performTermsSearch = (terms, excluded) => {
    if (terms.size < 2) return withAll(terms, excluded);
    const {docnames, filenames, indexentries, titles} = Search._index;
    const [weights, pages] = [new Map(), new Map()];
    for (const term of terms) {
      const found = withAll(new Set([term]), excluded);
      weights.set(term, found.length ? Math.log(1 + docnames.length / found.length) : 0);
      for (const result of found) {
        if (!pages.has(result[5])) pages.set(result[5], result.map((part, k) => (k === 4 ? 0 : part)));
        const page = pages.get(result[5]);
        page[4] += weights.get(term) * (result[4] < Scorer.title ? 1 : 2);
      }
    }
    const sum = words => words.reduce((total, word) => total + weights.get(word), 0);
    const whole = sum([...terms]);
    const results = [...pages.values()].filter(page => page[4] > whole / 2);
    results.forEach(page => (page[4] *= Scorer.title / whole));
    for (const [entry, places] of Object.entries(indexentries)) {
      const words = entry.includes("(") ? [] : wordsOf(entry);
      if (words.length === 0 || !words.every(word => terms.has(word))) continue;
      for (const [file, id] of places) {
        const score = 50 * sum(words) / whole;
        results.push([docnames[file], titles[file], id ? `#${id}` : "", null, score, filenames[file], "index"]);
      }
    }
    return results;
  };
}
