// Defines the error of a command that fails.

/** Its message is printed without a stack trace. The default exit code is 1. */
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
