# Stands in for Homebrew, which no package registry has. It evaluates a formula for each system and CPU, compares hashes
# with the archives of a release, and on Linux x86-64 installs the archive and runs the formula's test.
#
#   ruby .ci/formula.rb DIR URL        # a release in DIR that was made with -url URL
require "digest"
require "pathname"
require "tmpdir"

class Pathname
  def install(names)
    mkpath
    names = { names => File.basename(names) } if names.is_a?(String)
    names.each { |from, to| File.rename(from, self / to) }
  end
end

class Formula
  Target = Struct.new(:os, :cpu, :url, :sha256, :test)

  class << self
    def target = @@target
    def target=(target)
      @@target = target
    end

    %i[desc homepage version license].each do |field|
      define_method(field) { |text| raise "#{field} is empty" if text.empty? }
    end
    %i[macos linux].each { |name| define_method("on_#{name}") { |&block| block.call if target.os == name } }
    %i[arm intel].each { |name| define_method("on_#{name}") { |&block| block.call if target.cpu == name } }
    def url(text) = target.url = text
    def sha256(text) = target.sha256 = text
    def test(&block) = target.test = block
  end

  def initialize(prefix)
    @prefix = Pathname(prefix)
  end

  def bin = @prefix / "bin"
  def man1 = @prefix / "share/man/man1"
  def bash_completion = @prefix / "etc/bash_completion.d"
  def zsh_completion = @prefix / "share/zsh/site-functions"
  def fish_completion = @prefix / "share/fish/vendor_completions.d"
  def system(*command) = Kernel.system(*command.map(&:to_s)) || raise("#{command.join(" ")} failed")
end

dir, url = ARGV
dir = File.expand_path(dir)
%i[macos linux].product(%i[arm intel]) do |os, cpu|
  Formula.target = Formula::Target.new(os, cpu)
  Object.send(:remove_const, :Gq) if defined?(Gq)
  load File.join(dir, "gq.rb")
  target = Formula.target
  name = File.basename(target.url)
  raise "#{os} #{cpu}: #{target.url} is not in #{url}" unless target.url == "#{url}/#{name}"
  raise "#{os} #{cpu}: #{name} has another hash" unless target.sha256 == Digest::SHA256.file(File.join(dir, name)).hexdigest

  next unless os == :linux && cpu == :intel

  Dir.mktmpdir do |work|
    Kernel.system("tar", "xzf", File.join(dir, name), "--strip-components=1", "--one-top-level=#{work}/archive") || raise("tar failed")
    formula = Gq.new("#{work}/prefix")
    Dir.chdir("#{work}/archive") { formula.install }
    formula.instance_eval(&target.test)
    puts Dir.glob("**/*", base: "#{work}/prefix").reject { |f| File.directory?("#{work}/prefix/#{f}") }
  end
end
