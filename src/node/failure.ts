/** Ends the program with exit code 1; the message names the problem and its fix. */
export class NodeFailure extends Error {
  override readonly name = "NodeFailure";
}
