// Errors of users who type a command line.

/** The command line does not fit the grammar. It is reported with the usage lines of the command; the exit code is 2. */
export class UsageError extends Error {
  override readonly name: string = "UsageError";
  /** Advice in a line of its own. */
  readonly hint: string | undefined;

  constructor(message: string, options: ErrorOptions & { readonly hint?: string | undefined } = {}) {
    super(message, options);
    this.hint = options.hint;
  }
}

/** A command or flag does not exist. Usage lines would only hide the suggestion, so they are not printed. */
export class UnknownWordError extends UsageError {
  override readonly name = "UnknownWordError";
}
