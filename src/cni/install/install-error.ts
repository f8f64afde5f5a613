/** Installation cannot go on; one line says why. */
export class InstallError extends Error {
  override readonly name = "InstallError";
}
