/** `64512` or `1.10`. */
export function parseAsNumber(text: string): number | undefined {
  const [, high, low] = /^(?:(\d{1,5})\.)?(\d{1,10})$/.exec(text) ?? [];
  if (low === undefined) return undefined;
  const number = high === undefined ? Number(low) : Number(high) * 65536 + Number(low);
  const fits = high === undefined || (Number(high) < 65536 && Number(low) < 65536);
  return fits && number < 2 ** 32 ? number : undefined;
}
