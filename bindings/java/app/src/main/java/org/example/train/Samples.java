package org.example.train;

import java.nio.ByteBuffer;
import java.util.Map;
import java.util.Random;
import pockengine.Program;
import pockengine.Tensor;
import pockengine.Trainer;

/** Stands for an app's own data: random numbers, and zeros as labels. The same for each step. */
final class Samples implements Trainer.Batches {
    private final Program.Entry train;

    Samples(Program program) {
        train = program.entry("train");
    }

    @Override
    public void read(long step, Map<String, ByteBuffer> inputs) {
        final Random random = new Random(step);
        for (Tensor input : train.inputs()) {
            final ByteBuffer buffer = inputs.get(input.name());
            while (buffer != null && buffer.hasRemaining()) {
                if (input.type() == Tensor.Type.F32) {
                    buffer.putFloat((float) random.nextGaussian());
                } else {
                    buffer.put((byte) 0);
                }
            }
        }
    }
}
