/** What cannot be converted, by its field. */
export class ConvertFault extends Error {
  override readonly name = "ConvertFault";
  constructor(
    readonly field: string,
    readonly reason: string,
  ) {
    super(`${field}: ${reason}`);
  }
}
