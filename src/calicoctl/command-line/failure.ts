// The error of a command that could not do its work.

/** The message is all that the user needs; it is printed without a stack trace. The exit code is 1 if not set. */
export class Failure extends Error {
  override readonly name = "Failure";
  readonly exitCode: number;
  /** As in Calico, errors found before a client exists are printed on standard output, where scripts look for them. */
  readonly stream: "out" | "err";

  constructor(
    message: string,
    options: ErrorOptions & { readonly exitCode?: number; readonly stream?: "out" | "err" } = {},
  ) {
    super(message, options);
    this.exitCode = options.exitCode ?? 1;
    this.stream = options.stream ?? "err";
  }
}
