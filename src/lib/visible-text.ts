// Text of others on a terminal. Names, annotations and what the network answers may hold characters that move the cursor,
// rename the window or type for the user: they are shown as what they are.

/** All of C0 but tabs and line breaks, DEL, and C1, which some terminals obey in UTF-8 too. */
const COMMAND = /[\0-\x08\x0b-\x1f\x7f-\x9f]/;
/** Ours: a line that is written again begins so, and colours, none of which hides anything. */
const OWN_OR_COMMAND = /(^\r(?:\x1b\[K)?|\x1b\[(?:[0-2]|3[0-7])m)|[\0-\x08\x0b-\x1f\x7f-\x9f]/g;
const CONTROL = /[\0-\x1f\x7f-\x9f]/;
const ANY_CONTROL = /[\0-\x1f\x7f-\x9f]/g;

const shown = (char: string): string => {
  const escaped = JSON.stringify(char).slice(1, -1);
  return escaped === char ? `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}` : escaped;
};

/** Whether there is anything in it that a terminal would obey. */
export const holdsCommands = (text: string): boolean => COMMAND.test(text);

/** A whole output: lines and tabs stay, and the few signs we send ourselves. */
export const forTerminal = (text: string): string =>
  holdsCommands(text) ? text.replace(OWN_OR_COMMAND, (found, own?: string) => own ?? shown(found)) : text;

/** A cell of a table: line breaks and tabs become visible too. */
export const onOneLine = (cell: string): string => (CONTROL.test(cell) ? cell.replace(ANY_CONTROL, shown) : cell);
