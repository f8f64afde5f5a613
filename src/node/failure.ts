/** The node cannot go on: the message says what, where and what to do. Ends the program with exit code 1. */
export class NodeFailure extends Error {
  override readonly name = "NodeFailure";
}
