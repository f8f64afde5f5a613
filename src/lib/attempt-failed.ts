// A file of its own: who only wants to know that a call failed need not load what makes calls.

/** One try on one server came to nothing; another server or a later moment may do better. */
export class AttemptFailed extends Error {
  override readonly name = "AttemptFailed";
  /** @param reached whether the request may have been carried out */
  constructor(
    readonly reason: string,
    readonly reached: boolean,
    options?: ErrorOptions,
  ) {
    super(reason, options);
  }
}
