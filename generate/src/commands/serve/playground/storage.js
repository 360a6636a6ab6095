// Where the browser keeps things. It may refuse: then they are forgotten with the page.

/** `localStorage` or `sessionStorage`, or something like it where cookies are blocked. */
function storageNamed(name) {
  try {
    return window[name] ?? forgetful(); // throws if blocked
  } catch {
    return forgetful();
  }
}

function forgetful() {
  const values = new Map();
  return {
    getItem: (name) => values.get(name) ?? null,
    setItem: (name, value) => { values.set(name, value); },
    removeItem: (name) => { values.delete(name); },
  };
}

/** Until the browser forgets its data, and until the tab is closed. */
const [lasting, ofTab] = ["localStorage", "sessionStorage"].map(storageNamed);

const isLasting = lasting instanceof Storage;
