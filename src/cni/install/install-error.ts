/** The installation cannot continue. The message is one line for the operator. */
export class InstallError extends Error {
  override readonly name = "InstallError";
}
