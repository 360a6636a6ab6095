// Checks the contrast of a page's texts.

/** Texts whose contrast with their background is below WCAG 2.2's 4.5 (success criterion 1.4.3). */
export const faint = (page) => page.evaluate(() => {
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const parsed = (colour) => {
    canvas.clearRect(0, 0, 1, 1);
    canvas.fillStyle = colour;
    canvas.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data;
    return { rgb: [r, g, b], alpha: a / 255 };
  };
  const over = (top, under) => top.rgb.map((part, place) => part * top.alpha + under[place] * (1 - top.alpha));
  const behind = (node) => (node === null ? [255, 255, 255] : over(parsed(getComputedStyle(node).backgroundColor), behind(node.parentElement)));
  const light = (rgb) => rgb.map((part) => part / 255).map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4))
    .reduce((sum, part, place) => sum + part * [0.2126, 0.7152, 0.0722][place], 0);
  const hasText = (one) => [...one.childNodes].some((child) => child.nodeType === Node.TEXT_NODE && child.textContent.trim() !== "");
  const isWritten = (one, pseudo) => !["none", "normal", '""'].includes(getComputedStyle(one, pseudo).content);
  // Pairs of an element and what of it has words: itself (null), or what CSS writes before or after it.
  const texts = [...document.querySelectorAll("body *")].filter((one) => one.checkVisibility() && !one.closest(":disabled, script, style, .unseen, svg"))
    .flatMap((one) => [...(hasText(one) ? [null] : []), ...["::before", "::after"].filter((pseudo) => isWritten(one, pseudo))].map((part) => [one, part]));
  return texts.map(([one, part]) => {
    const under = behind(one);
    const [a, b] = [light(over(parsed(getComputedStyle(one, part).color), under)), light(under)];
    return { what: `${one.tagName}${part ?? ""} ${one.className} ${one.textContent.slice(0, 20)}`, ratio: (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05) };
  }).filter(({ ratio }) => ratio < 4.5);
});
