/** A stored text that is not what its key promises: says which field and what was wanted. */
export class UnreadableValue extends Error {
  override readonly name = "UnreadableValue";
}
