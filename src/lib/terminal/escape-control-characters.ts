// Escapes control characters in text that is printed to a terminal. Names, annotations and text from the network may contain
// sequences that move the cursor, change the window title or simulate input.

/** C0 except tab and line feed, DEL, and C1, which some terminals interpret in UTF-8 too. */
const CONTROL_EXCEPT_LAYOUT = /[\0-\x08\x0b-\x1f\x7f-\x9f]/;
/** Group 1 matches the sequences that calico-ts itself prints: the start of a line that is overwritten, and colours. */
const OWN_OR_CONTROL = /(^\r(?:\x1b\[K)?|\x1b\[(?:[0-2]|3[0-7])m)|[\0-\x08\x0b-\x1f\x7f-\x9f]/g;
const CONTROL = /[\0-\x1f\x7f-\x9f]/;
const ALL_CONTROLS = /[\0-\x1f\x7f-\x9f]/g;

const escape = (char: string): string => {
  const escaped = JSON.stringify(char).slice(1, -1);
  return escaped === char ? `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}` : escaped;
};

/** Returns whether the text has control characters other than tabs and line feeds. */
export const hasControlCharacters = (text: string): boolean => CONTROL_EXCEPT_LAYOUT.test(text);

/** For the whole output of a program: keeps tabs, line feeds and the sequences that calico-ts itself prints. */
export const escapeForTerminal = (text: string): string =>
  hasControlCharacters(text) ? text.replace(OWN_OR_CONTROL, (found, own?: string) => own ?? escape(found)) : text;

/** For a cell of a table: escapes tabs and line feeds too. */
export const escapeCell = (cell: string): string => (CONTROL.test(cell) ? cell.replace(ALL_CONTROLS, escape) : cell);
