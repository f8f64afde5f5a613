// How a command ends badly. A Failure is a sentence for the user; anything else that is thrown is a defect of ours.

/** The command could not do what was asked; the message is all the user needs. Exit code 1 unless told. */
export class Failure extends Error {
  override readonly name = "Failure";
  readonly exitCode: number;
  /** Errors found before a client exists go to standard output, as scripts made for the original expect. */
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

/** The command line does not fit the grammar: shown with the usage lines. */
export class UsageFailure extends Error {
  override readonly name = "UsageFailure";
}
