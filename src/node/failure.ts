/** Ends the program with exit code 1; the message names the problem and its fix. */
export class FatalNodeError extends Error {
  override readonly name = "FatalNodeError";
}
