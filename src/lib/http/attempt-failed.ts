// The error of a request that may succeed on another server or later. It has a file of its own, so that code that only
// handles the error does not load the HTTP/2 client.

export class AttemptFailed extends Error {
  override readonly name = "AttemptFailed";
  /** @param mayHaveRun whether the request may have been carried out */
  constructor(
    readonly reason: string,
    readonly mayHaveRun: boolean,
    options?: ErrorOptions,
  ) {
    super(reason, options);
  }
}
