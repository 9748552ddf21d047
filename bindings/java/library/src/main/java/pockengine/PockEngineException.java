package pockengine;

/** A program that failed while it ran: a file, the system, or a training that diverged. */
public final class PockEngineException extends RuntimeException {
    private static final long serialVersionUID = 1L;

    /** Kinds of failures. */
    public enum Reason {
        /** The operating system refused: threads, memory, a file. */
        SYSTEM(3),
        /** A file that is no safetensors file, or a damaged one. */
        FORMAT(4),
        /** A valid file of another program. */
        MISMATCH(5),
        /** A loss or a parameter that is not finite. */
        DIVERGED(7),
        /** An unknown failure. */
        OTHER(-1);

        private final int status;

        Reason(int status) {
            this.status = status;
        }

        static Reason of(int status) {
            for (Reason reason : values()) {
                if (reason.status == status) {
                    return reason;
                }
            }
            return OTHER;
        }
    }

    private final Reason reason;

    PockEngineException(Reason reason, String message) {
        super(message);
        this.reason = reason;
    }

    /** Returns the kind of the failure. */
    public Reason reason() {
        return reason;
    }
}
