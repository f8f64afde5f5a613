/** The stored text is not a valid value for its key. The message names the field and the expected value. */
export class UnreadableValue extends Error {
  override readonly name = "UnreadableValue";
}
