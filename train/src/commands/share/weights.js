// The weights as the page holds them: one run of bytes, written in base64, and a table that says where in it each tensor lies.

/** The bytes that base64 stands for; in pieces, so that no string as long as all of them is made on the way. */
function bytesOf(base64) {
  const PIECE = 1 << 20; // a multiple of four characters, which are three bytes
  const text = base64.trim();
  const padding = text.endsWith("==") ? 2 : text.endsWith("=") ? 1 : 0;
  const bytes = new Uint8Array(text.length / 4 * 3 - padding);
  for (let from = 0, at = 0; from < text.length; from += PIECE) {
    const piece = atob(text.slice(from, from + PIECE));
    for (let i = 0; i < piece.length; i++) bytes[at++] = piece.charCodeAt(i);
  }
  return bytes;
}

/** A function that gives a tensor by its name: a matrix, a vector as an array, null where the model has none. */
function tensorsOf(table, buffer) {
  const entries = new Map(table.map((entry) => [entry.name, entry]));
  return (name) => {
    const entry = entries.get(name);
    if (!entry) return null;
    const { type, shape, offset } = entry;
    return shape.length === 1 ? new Float32Array(buffer, offset, shape[0]) : readMatrix(buffer, offset, type, shape);
  };
}
