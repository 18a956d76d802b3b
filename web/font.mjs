// Reads how wide the characters of a TrueType font are, so that charts are laid out without a browser.

/** Returns the positions of the tables of a font by their names. */
function tables(font) {
  const count = font.readUInt16BE(4);
  const entries = Array.from({ length: count }, (_, i) => 12 + 16 * i);
  return Object.fromEntries(entries.map((at) => [font.toString("latin1", at, at + 4), font.readUInt32BE(at + 8)]));
}

/** Returns pairs of characters and glyphs, from the table of segments (format 4), which has characters up to U+FFFE. */
function* glyphs(font, cmap) {
  const positions = Array.from({ length: font.readUInt16BE(cmap + 2) }, (_, i) => cmap + 8 + 8 * i);
  const subtables = positions.map((at) => cmap + font.readUInt32BE(at));
  const table = subtables.find((at) => font.readUInt16BE(at) === 4);
  const doubled = font.readUInt16BE(table + 6);
  for (let at = table + 14; at < table + 14 + doubled; at += 2) {
    const [last, first] = [font.readUInt16BE(at), font.readUInt16BE(at + doubled + 2)];
    const [delta, position] = [font.readUInt16BE(at + 2 * doubled + 2), at + 3 * doubled + 2];
    const offset = font.readUInt16BE(position);
    for (let code = first; code <= last && code < 0xffff; code += 1) {
      const stored = offset ? font.readUInt16BE(position + offset + 2 * (code - first)) : code;
      const glyph = stored === 0 ? 0 : (stored + delta) % 0x10000;
      if (glyph) yield [String.fromCharCode(code), glyph];
    }
  }
}

/** Returns the advance width of each character of a font, in thousandths of its size. */
export function widths(font) {
  const { head, hhea, hmtx, cmap } = tables(font);
  const unitsPerEm = font.readUInt16BE(head + 18);
  const longest = font.readUInt16BE(hhea + 34) - 1; // glyphs after this one are as wide as this one
  const width = (glyph) => Math.round((1000 * font.readUInt16BE(hmtx + 4 * Math.min(glyph, longest))) / unitsPerEm);
  return Object.fromEntries([...glyphs(font, cmap)].map(([character, glyph]) => [character, width(glyph)]));
}
