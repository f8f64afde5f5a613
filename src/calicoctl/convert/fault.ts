/** The error of a resource that cannot be converted, with the field that is the reason. */
export class ConvertFault extends Error {
  override readonly name = "ConvertFault";
  constructor(
    readonly field: string,
    readonly reason: string,
  ) {
    super(`${field}: ${reason}`);
  }
}
