// Trains two programs in one process from C++11: a session as an object, errors as exceptions.
//
//     c++ -std=c++11 train.cpp -o train
//         $(pkg-config --cflags --libs pockengine-digits pockengine-words)
//     ./train digits/weights.safetensors words/weights.safetensors
//
// Both programs have inputs x and target, and the output loss.
#include <cstdint>
#include <cstdio>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "pe_host.h"
#include "pe_program_digits.h"
#include "pe_program_words.h"

namespace {

class Session {
  public:
    Session(const pe_program &program, const std::string &weights, int threads) {
        char message[PE_MESSAGE_BYTES];
        session_ = pe_open(&program, threads, message);
        if (!session_) {
            throw std::runtime_error(message);
        }
        try {
            check(pe_load_weights(session_, weights.c_str()));
        } catch (...) {
            pe_shut(session_);
            throw;
        }
    }
    ~Session() { pe_shut(session_); }
    Session(const Session &) = delete;
    Session &operator=(const Session &) = delete;

    float step(const std::vector<float> &x, const std::vector<std::int64_t> &target, float rate) {
        const pe_entry *train = pe_find_entry(session_->program, "train");
        std::vector<const void *> inputs(static_cast<std::size_t>(train->input_count), nullptr);
        std::vector<void *> outputs(static_cast<std::size_t>(train->output_count), nullptr);
        float loss = 0;
        for (int i = 0; i < train->input_count; i++) {
            const std::string name = train->inputs[i].name;
            inputs[static_cast<std::size_t>(i)] = name == "x" ? static_cast<const void *>(x.data())
                                                  : name == "target" ? target.data()
                                                                     : nullptr;
        }
        for (int i = 0; i < train->output_count; i++) {
            if (std::string(train->outputs[i].name) == "loss") {
                outputs[static_cast<std::size_t>(i)] = &loss;
            }
        }
        const pe_controls controls = {rate, ++steps_, 0};
        check(pe_train_step(session_, inputs.data(), &controls, outputs.data()));
        return loss;
    }

  private:
    void check(pe_status status) const {
        if (status != PE_OK) {
            throw std::runtime_error(pe_message(session_));
        }
    }

    pe_session *session_;
    std::int32_t steps_ = 0;
};

// Trains repeatedly on one batch; returns whether the loss fell.
bool learns(const pe_program &program, const std::string &weights, std::size_t size) {
    const std::size_t batch = 8;
    std::vector<float> x(batch * size);
    std::vector<std::int64_t> target(batch);
    for (std::size_t i = 0; i < x.size(); i++) {
        x[i] = static_cast<float>(i * 37 % 101) / 101.0F;
    }
    for (std::size_t i = 0; i < batch; i++) {
        target[i] = static_cast<std::int64_t>(i % 2);
    }
    Session session(program, weights, 2);
    const float first = session.step(x, target, 0.1F);
    float last = first;
    for (int i = 0; i < 30; i++) {
        last = session.step(x, target, 0.1F);
    }
    std::printf("%s: loss %.4f, then %.4f\n", program.name, static_cast<double>(first),
                static_cast<double>(last));
    return last < first;
}

} // namespace

int main(int count, char **arguments) {
    if (count != 3) {
        std::fprintf(stderr, "usage: %s DIGITS-WEIGHTS WORDS-WEIGHTS\n", arguments[0]);
        return 2;
    }
    bool digits = false, words = false;
    std::string fault;
    std::thread other([&] { // sessions in different threads are independent
        try {
            words = learns(pe_program_words, arguments[2], 32);
        } catch (const std::exception &error) {
            fault = error.what();
        }
    });
    try {
        digits = learns(pe_program_digits, arguments[1], 64);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "error: %s\n", error.what());
    }
    other.join();
    if (!fault.empty()) {
        std::fprintf(stderr, "error: %s\n", fault.c_str());
    }
    return digits && words ? 0 : 1;
}
