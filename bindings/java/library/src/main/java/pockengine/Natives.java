package pockengine;

import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;

/**
 * The functions of pe_jni.c. Texts cross as bytes of UTF-8: JNI's own form of it is another one.
 * Nothing here checks what it gets; {@link Session} and {@link Trainer} do.
 */
final class Natives {
    static final int INPUTS = 0;
    static final int OUTPUTS = 1;
    static final int PARAMS = 2;

    private static final int ARGUMENT = 1;
    private static final int NAME = 2;
    private static final int VALUE = 6;

    static {
        final String path = System.getProperty("pockengine.library");
        if (path == null) {
            System.loadLibrary("pockengine_java");
        } else {
            System.load(path);
        }
    }

    private Natives() {}

    /** Name of a program, an entry or a tensor; null after the last one. */
    static native byte[] programName(int program);

    static native byte[] entryName(int program, int entry);

    static native byte[] tensorName(int program, int entry, int kind, int index);

    /** The type, the flags, the bytes and the dimensions of a tensor. */
    static native long[] tensor(int program, int entry, int kind, int index);

    static native long open(int program, int threads);

    static native void close(long session);

    static native void load(long session, byte[] path);

    static native void save(long session, byte[] path, boolean whole);

    static native void export(long session, byte[] path, boolean all);

    static native void run(long session, byte[] entry, ByteBuffer[] inputs, ByteBuffer[] outputs);

    static native void get(long session, byte[] name, ByteBuffer data);

    static native void set(long session, byte[] name, ByteBuffer data);

    /** The steps, the updates and the seed. */
    static native long[] progress(long session);

    /** Sets kind, warm-up and total, and the seed, unless a checkpoint has set them. */
    static native void schedule(
            long session, double rate, long[] numbers, long seed, boolean resumed);

    static native boolean resume(long session, byte[] place, int keep);

    /** `numbers` are the last step, the steps between checkpoints, how many are kept. */
    static native void train(
            long session, Trainer trainer, ByteBuffer[] inputs, byte[] place, long[] numbers,
            boolean rollBack) throws Exception;

    /** Text for C, which ends with a zero. */
    static byte[] text(String text) {
        if (text.indexOf('\0') >= 0) {
            throw new IllegalArgumentException("a name or path cannot have a zero in it: " + text);
        }
        return (text + '\0').getBytes(StandardCharsets.UTF_8);
    }

    static String string(byte[] text) {
        return text == null ? null : new String(text, StandardCharsets.UTF_8);
    }

    /** Called by C: throws the exception of a status. */
    static void fail(int status, byte[] message) {
        final String text = string(message);
        if (status == ARGUMENT || status == NAME || status == VALUE) {
            throw new IllegalArgumentException(text);
        }
        throw new PockEngineException(PockEngineException.Reason.of(status), text);
    }
}
