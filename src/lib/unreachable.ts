/** Ends a switch over a union: a new alternative stops compiling here. */
export function unreachable(value: never): never {
  throw new Error(`unexpected value ${JSON.stringify(value)}`);
}
