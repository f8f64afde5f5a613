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

/** The command line does not fit the grammar. It is shown with the usage lines; the exit code is 2. */
export class UsageFailure extends Error {
  override readonly name: string = "UsageFailure";
}

export class UnknownFlag extends UsageFailure {
  override readonly name = "UnknownFlag";
  constructor(
    readonly flag: string,
    readonly known: readonly string[],
    options: ErrorOptions = {},
  ) {
    super(`unknown flag: ${flag}`, options);
  }

  /** @param nearest of the names the one that was probably meant; loaded only when it is needed */
  suggest(nearest: (name: string, known: Iterable<string>) => string | undefined): void {
    const near = this.flag.startsWith("--") ? nearest(this.flag.slice(2), this.known) : undefined;
    if (near !== undefined) this.message = `unknown flag: ${this.flag}, did you mean --${near}?`;
  }
}
