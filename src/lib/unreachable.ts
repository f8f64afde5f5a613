// Makes the compiler check that a switch handles every member of a union.

/** For the `default` case of the switch. A new member of the union causes a compile error there. */
export function unreachable(value: never): never {
  throw new Error(`unexpected value ${JSON.stringify(value)}`);
}
