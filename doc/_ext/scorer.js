// Pages about the inside of the package come after those for its users; the guide comes before the
// reference and the examples, where these only have the words, and before the glossary and tables
// of translations.
var Scorer = {
  score: ([page, , , , score, , kind]) => {
    if (/^(architecture|add_|decisions)/.test(page)) return score - 10;
    const isSecond = /^(glossary|coming_from)/.test(page) || (kind === "text" && /^(generated|auto_examples)/.test(page));
    return isSecond ? score - 1 : score;
  },
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
// them, where rare words and words of titles count more, and index entries made of its words. A
// word that is nowhere counts as the nearest one, if that differs by a letter (two in long words).
{
  const withAll = Search.performTermsSearch;
  const stem = word => new Stemmer().stemWord(word);
  const wordsOf = text => splitQuery(text).filter(word => !stopwords.has(word)).map(stem);

  // Letters to put in, leave out, replace or swap with the next.
  const distance = (a, b) => {
    let [before, last] = [[], Array.from({length: b.length + 1}, (_, j) => j)];
    for (let i = 1; i <= a.length; i++) {
      const row = [i];
      for (let j = 1; j <= b.length; j++) {
        row[j] = Math.min(last[j] + 1, row[j - 1] + 1, last[j - 1] + (a[i - 1] !== b[j - 1]));
        if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1]) {
          row[j] = Math.min(row[j], before[j - 2] + 1);
        }
      }
      [before, last] = [last, row];
    }
    return last[b.length];
  };
  const nearest = (word, words) => {
    let [best, least] = [word, word.length < 4 ? 0 : word.length < 7 ? 2 : 3];
    for (const other of words) {
      const isStart = other.length > 5 && word.startsWith(other);  // a stem, and an ending typed wrongly
      if (!isStart && Math.abs(other.length - word.length) >= least) continue;
      const steps = isStart ? 1 : distance(word, other);
      if (steps < least) [best, least] = [other, steps];
    }
    return best;
  };

  Search.performTermsSearch = (given, excluded) => {
    const {docnames, filenames, indexentries, titles, titleterms, terms: texts} = Search._index;
    const entries = Object.entries(indexentries)
      .filter(([entry]) => !entry.includes("("))
      .map(([entry, places]) => [wordsOf(entry), places]);
    const inEntries = new Set(entries.flatMap(([words]) => words));
    const find = word => withAll(new Set([word]), excluded);
    const isKnown = word => inEntries.has(word) || find(word).length > 0;
    const all = [...Object.keys(titleterms), ...inEntries, ...Object.keys(texts)];
    const terms = new Set([...given].map(word => (isKnown(word) ? word : nearest(word, all))));

    const [weights, pages] = [new Map(), new Map()];
    for (const term of terms) {
      const found = find(term);
      const count = found.length || (inEntries.has(term) ? 1 : Infinity);
      weights.set(term, Math.log(1 + docnames.length / count));
      for (const result of found) {
        if (!pages.has(result[5])) pages.set(result[5], result.map((part, k) => (k === 4 ? 0 : part)));
        const page = pages.get(result[5]);
        page[4] += weights.get(term) * (result[4] < Scorer.title ? 1 : 2);
      }
    }
    const sum = words => words.reduce((total, word) => total + weights.get(word), 0);
    const whole = sum([...terms]) || 1;
    const results = [...pages.values()].filter(page => page[4] > whole / 2);
    results.forEach(page => (page[4] *= Scorer.title / whole));
    const shown = terms.size < 2 ? withAll(terms, excluded) : results;
    for (const result of shown) {
      const words = wordsOf(result[1]);
      result[4] += (4 * words.filter(word => terms.has(word)).length) / (words.length || 1);
    }
    for (const [words, places] of entries) {
      if (words.length === 0 || !words.every(word => terms.has(word))) continue;
      for (const [file, id] of places) {
        const score = 50 * sum(words) / whole;
        shown.push([docnames[file], titles[file], id ? `#${id}` : "", null, score, filenames[file], "index"]);
      }
    }
    return shown;
  };

  // One result of a page, the best, since its title, entries and text are found apart. Objects of
  // the reference each keep theirs.
  const perform = Search._performSearch;
  Search._performSearch = (...given) => {
    const [seen, found] = [new Set(), perform(...given)];  // the best comes last
    const isNew = ([page, , , , , , kind]) => kind === "object" || (!seen.has(page) && seen.add(page));
    return found.reverse().filter(isNew).reverse();
  };
}
