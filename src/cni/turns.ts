// What is asked about one attachment is done in the order it was asked, each when the one before has ended.

export class Turns {
  readonly #last = new Map<string, Promise<void>>();

  /** Resolves when all who came before with the same name have left. */
  async take(name: string): Promise<Disposable> {
    const before = this.#last.get(name);
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#last.set(name, promise);
    await before;
    return {
      [Symbol.dispose]: () => {
        resolve();
        if (this.#last.get(name) === promise) this.#last.delete(name);
      },
    };
  }
}
