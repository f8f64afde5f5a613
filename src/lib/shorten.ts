// Text of others in messages. An annotation may have 256 kB, and an error that contains it is logged, returned to the
// kubelet and shown to users; the beginning is enough to find it.

const MAX_SHOWN = 200;

/** At most 200 characters of the text. */
export const shorten = (text: string): string =>
  text.length > MAX_SHOWN ? `${text.slice(0, MAX_SHOWN - 3)}...` : text;

/** The same in quotes, with line breaks and control characters escaped. */
export const quote = (text: string): string => JSON.stringify(shorten(text));
